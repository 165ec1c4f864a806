"""pgqueue as a peer of the side-by-side harness; what its verbs do, the bench itself decides."""

from pgqueue.bench.peer import peer

if __name__ == "__main__":
    peer()
