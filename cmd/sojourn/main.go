// Command sojourn is the stock binary, which contains the examples.
package main

import (
	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/examples"
)

func main() { sojourn.Main(examples.Register) }
