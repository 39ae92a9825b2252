package channel

import "github.com/sojourn-run/sojourn/app/internal/workerconn"

// PrincipalOf returns the principal of a peer's calls, as a socket has it.
func PrincipalOf(p *workerconn.Conn) any { return &worker{Conn: p} }
