"""Trains a network on real images: scikit-learn's 8x8 digits, or Fashion-MNIST.

    python docs/examples/train_digits.py                              # LeNet, under a minute
    python docs/examples/train_digits.py --model mlp --no-hybridize   # an MLP, eagerly
    apt-get install dataset-fashion-mnist
    python docs/examples/train_digits.py --data fashion-mnist --epochs 5

Writes a checkpoint, the drawn graph and the loss curve to out/. The loop is
plait.tools.train.train_epoch:

    for x, y in loader:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(x.shape[0])
"""

from plait.tools import train

if __name__ == "__main__":
    history = train.run()
    print(f"best validation accuracy: {max(h['valid'] for h in history):.2%}")
