package wire

import (
	"encoding/binary"
	"fmt"
)

// GreetingSize is the length of the server's first message, in bytes.
//
//	 0               8               16      18
//	+---------------+---------------+-------+
//	| "NBDMAGIC"    | "IHAVEOPT"    | flags |
//	+---------------+---------------+-------+
const GreetingSize = 18

// AppendGreeting appends the server's first message.
func AppendGreeting(b []byte, f HandshakeFlags) []byte {
	b = binary.BigEndian.AppendUint64(b, MagicInit)
	b = binary.BigEndian.AppendUint64(b, MagicOption)
	return binary.BigEndian.AppendUint16(b, uint16(f))
}

// DecodeGreeting decodes the server's first message.
func DecodeGreeting(b []byte) (HandshakeFlags, error) {
	if len(b) < GreetingSize {
		return 0, fmt.Errorf("greeting of %d bytes: %w", len(b), ErrMalformed)
	}
	if binary.BigEndian.Uint64(b) != MagicInit || binary.BigEndian.Uint64(b[8:]) != MagicOption {
		return 0, fmt.Errorf("greeting: %w", ErrMagic)
	}
	return HandshakeFlags(binary.BigEndian.Uint16(b[16:])), nil
}

// ClientFlagsSize is the length of the client's reply to the greeting, in bytes.
const ClientFlagsSize = 4

// AppendClientFlags appends the client's reply to the greeting.
func AppendClientFlags(b []byte, f ClientFlags) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(f))
}

// DecodeClientFlags decodes the client's reply to the greeting.
func DecodeClientFlags(b []byte) (ClientFlags, error) {
	if len(b) < ClientFlagsSize {
		return 0, fmt.Errorf("client flags of %d bytes: %w", len(b), ErrMalformed)
	}
	return ClientFlags(binary.BigEndian.Uint32(b)), nil
}
