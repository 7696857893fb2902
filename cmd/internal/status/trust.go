package status

// Trust says to people which key has proven a session, by its fingerprint, and what encrypts it. Both
// are empty if there is none.
func Trust(key, cipher string) string {
	text := "no key, "
	if key != "" {
		text = "proven by key " + key + ", "
	}
	if cipher == "" {
		return text + "not encrypted"
	}
	return text + "encrypted with " + cipher
}
