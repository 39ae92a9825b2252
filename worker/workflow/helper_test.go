package workflow_test

import (
	"io"

	"github.com/rs/zerolog"
)

func logger(w io.Writer) zerolog.Logger { return zerolog.New(w) }
