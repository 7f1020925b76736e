"""What `mpirun` does, in a few lines: start a program in every host of the job's host file, and wait for all of them.

Host file and launch agent are where Open MPI looks for them. The program finds its rank and rank 0's address in the
variables that `allreduce.py` reads.
"""

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

ADDRESS = "python -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'"


def main() -> int:
    agent = os.environ["OMPI_MCA_plm_rsh_agent"]
    lines = Path(os.environ["OMPI_MCA_orte_default_hostfile"]).read_text().splitlines()
    hosts = [line.split()[0] for line in lines]
    leader = subprocess.run([agent, hosts[0], ADDRESS], check=True, capture_output=True, text=True).stdout.strip()
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    ranks = []
    for rank, host in enumerate(hosts):
        told = {"MASTER_ADDR": leader, "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": len(hosts)}
        variables = [f"{name}={value}" for name, value in told.items()]
        ranks.append(subprocess.Popen([agent, host, shlex.join(["env", *variables, *sys.argv[1:]])]))
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
