"""A Unitree G1 in three levels: tasks with hands, the command, and the policy of the legs."""
