"""Messages that carry what changed of a policy's weights."""

import pytest
import torch

from rrf.orchestra.weight_sync import WeightReceiver, WeightSender, num_bytes

DTYPES = (torch.float32, torch.bfloat16, torch.int64)


def some_weights():
    generator = torch.Generator().manual_seed(0)
    made = {str(d): torch.randn(40, 5, generator=generator).mul(9).to(d) for d in DTYPES}
    return made | {"scalar": torch.tensor(3.0), "mask": torch.tensor([True, False])}


def received(*messages):
    receiver = WeightReceiver({n: torch.zeros_like(v) for n, v in some_weights().items()})
    for message in messages:
        receiver.apply(message)
    return receiver


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in other)


def test_the_first_message_holds_everything():
    weights = some_weights()
    message = WeightSender().message(weights, 3)
    receiver = received(message)
    assert same(receiver.weights, weights)
    assert receiver.version == 3
    assert num_bytes(message) == sum(v.numel() * v.element_size() for v in weights.values())


def test_later_messages_hold_what_changed():
    sender, weights = WeightSender(), some_weights()
    messages = [sender.message(weights, 0), sender.message(weights, 1)]
    assert num_bytes(messages[1]) == 0
    weights["torch.float32"][7, 3] = 1.5
    weights["torch.bfloat16"] += 1
    messages.append(sender.message(weights, 2))
    assert num_bytes(messages[2]) == (4 + 4) + 200 * 2
    assert same(received(*messages).weights, weights)


def test_minus_zero_is_a_change():
    sender, weights = WeightSender(), {"scalar": torch.tensor(0.0)}
    first = sender.message(weights, 0)
    second = sender.message({"scalar": torch.tensor(-0.0)}, 1)
    receiver = WeightReceiver({"scalar": torch.tensor(1.0)})
    receiver.apply(first)
    receiver.apply(second)
    assert torch.signbit(receiver.weights["scalar"])


def test_a_new_receiver_gets_everything_of_the_last_version():
    sender, weights = WeightSender(), some_weights()
    sender.message(weights, 0)
    weights["scalar"] = torch.tensor(4.0)
    sender.message(weights, 1)
    receiver = received(sender.everything())
    assert same(receiver.weights, weights)
    assert receiver.version == 1


def test_a_message_that_was_missed_is_noticed():
    sender, weights = WeightSender(), some_weights()
    first = sender.message(weights, 0)
    sender.message(weights, 1)
    with pytest.raises(ValueError, match="version 2 change version 1, but version 0 is here"):
        received(first, sender.message(weights, 2))
