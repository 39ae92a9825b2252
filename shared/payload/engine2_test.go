//go:build goexperiment.jsonv2

package payload

const secondEngine = true
