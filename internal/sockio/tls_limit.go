package sockio

import "errors"

// KeyBytes is how many bytes the keys of one TLS connection may encrypt, in one direction, where the owner
// can make another connection in its place. RFC 8446 §5.5 permits AES-GCM 2^24.5 records of 16 KiB, and
// this is 2^24 of them. crypto/tls never renews its keys by itself.
const KeyBytes = 1 << 38

// recordCost is what a record counts beside its bytes: its header, tag and padding in the blocks of AES.
const recordCost = 32

// ErrKeysUsedUp means that Limit's number of bytes has been encrypted. A new connection has new keys.
var ErrKeysUsedUp = errors.New("the keys of this TLS connection have encrypted as much as they may (RFC 8446 §5.5), and a new connection gets new ones")

// Limit has Flush and Write fail with ErrKeysUsedUp once they have encrypted n bytes. Without Limit there
// is no bound. Call it before both.
func (t *TLS) Limit(n uint64) { t.limit = n }

// usedUp reports whether nothing more may be encrypted.
func (t *TLS) usedUp() bool { return t.limit > 0 && t.spent >= t.limit }

// encrypt has crypto/tls make a record of p, or more than one if p is longer than a record.
func (t *TLS) encrypt(p []byte) (int, error) {
	if t.usedUp() {
		return 0, ErrKeysUsedUp
	}
	t.spent += uint64(len(p)) + recordCost
	return t.conn.Write(p)
}
