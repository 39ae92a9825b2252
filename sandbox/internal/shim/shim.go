// Package shim contains the programs that run inside Node and Python executors: they speak the frame protocol and call
// handlers.
package shim

import "embed"

// Node is an ES module for Node 18 or later.
//
//go:embed node.mjs
var Node []byte

// NodeProxy is the module that Node loads first, in each of its threads, if it uses a proxy.
//
//go:embed proxy.cjs
var NodeProxy []byte

// Types are type declarations for handlers by file name. Editors and type checkers read them; executors do not.
//
//go:embed sojourn.d.ts sojourn.pyi
var Types embed.FS

// TSConfig is a tsconfig.json for a folder of handlers that has none.
//
//go:embed tsconfig.json
var TSConfig []byte

// Python is the script that runs Python handlers in an executor. It needs Python 3.9 or later.
//
//go:embed python.py
var Python []byte
