// Package zishang runs the Socket.IO library github.com/zishang520/socket.io as the peer of ours: its client with our
// server, our client with its servers of version 2 and 3. It is apart from the product's module, so nothing of the
// library is linked into the binary. What the library did here, by version, is written down in decision 1; every claim
// made there has a test here.
package zishang
