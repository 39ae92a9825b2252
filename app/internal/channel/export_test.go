package channel

import "github.com/sojourn-run/sojourn/app/internal/workerconn"

// PrincipalOf is the principal of calls of a peer, as a socket has it.
func PrincipalOf(p *workerconn.Peer) any { return &worker{Peer: p} }
