"""pgqueue as a peer of the side-by-side harness: its verbs are ``pgqueue bench``'s own."""

from pgqueue.cli.bench import bench

if __name__ == "__main__":
    bench()
