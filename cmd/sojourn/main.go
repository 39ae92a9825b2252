// Command sojourn is the stock binary, with the examples inside.
package main

import (
	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/examples"
)

func main() { sojourn.Main(examples.Register) }
