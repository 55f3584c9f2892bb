"""`python -m infra.prefect_server PORT`: Prefect's server behind a guard, on 127.0.0.1.

It runs as `prefect server start` runs it, which knows no guard.
"""

import sys

import uvicorn
from prefect.server.api.server import create_app

from infra import ports
from rrf.service_guard import Guard

if __name__ == "__main__":
    app = Guard(create_app(final=True))
    uvicorn.run(app, host=ports.HOST, port=int(sys.argv[1]), log_level="warning")
