//go:build !(amd64 || arm64) || noasm

package flush

func detect() method { return portable }

func available() []method { return []method{portable} }
