//go:build !amd64 || noasm

package iwarp

import "hash/crc32"

// updateCRC is crc32.Update with the table castagnoli.
func updateCRC(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }
