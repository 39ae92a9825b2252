package cli_test

import "testing"

func TestPoolsFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(1, "session_pool_not_found", "pools", "describe", "llama")
	s.try(2, "requires --definition, --queue and --size", "pools", "set", "llama", "--size", "2")
	s.try(1, "warm", "pools", "set", "llama", "--definition", "llama", "--queue", "gpu", "--size", "2", "--warm", "3")
	s.try(0, "no limit", "pools", "set", "llama", "--definition", "llama", "--queue", "gpu", "--size", "2")
	s.try(0, "unowned", "pools", "describe", "llama")
	s.try(0, "llama", "pools")
	s.try(0, "pool llama deleted", "pools", "delete", "llama")
	s.try(1, "session_pool_not_found", "pools", "delete", "llama")
}
