package channel

import "github.com/sojourn-run/sojourn/app/internal/peer"

// PrincipalOf is the principal of calls of a peer, as a socket has it.
func PrincipalOf(p *peer.Peer) any { return &worker{Peer: p} }
