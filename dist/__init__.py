"""A job of several processes (ranks), which MPI starts and whose messages it carries."""
