"""Trains a network on real pictures: the 8x8 digits of scikit-learn.

    python docs/examples/train_digits.py                              # plait train --data digits
    python docs/examples/train_digits.py --model mlp --no-hybridize   # an MLP, eagerly
    python docs/examples/train_digits.py --help                       # all options

out/report.html shows the results. The loop is plait.tools.train.loop.train_epoch; in short:

    for x, y in loader:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(x.shape[0])
"""

import sys

from plait.tools import train

if __name__ == "__main__":
    history = train.run(["--data", "digits", *sys.argv[1:]])
    print(f"best validation accuracy: {max(h['valid'] for h in history):.2%}")
