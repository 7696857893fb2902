package flags

import "fmt"

// Count is n things for people, such as "1 export" or "2 exports". noun is one of them; its plural ends in s.
func Count[N int | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
