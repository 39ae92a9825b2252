// Package zishang tests the Socket.IO library github.com/zishang520/socket.io as the peer: its client with Sojourn's
// server, and Sojourn's client with its servers of version 2 and 3. It is a separate module, so that the binary does
// not link the library. Decision 1 describes the library's behavior by version; every claim there has a test here.
package zishang
