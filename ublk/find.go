package ublk

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// charClass has an entry ublkcN for each block device of the driver, from before a server can begin with
// it until after it was stopped.
const charClass = "/sys/class/ublk-char"

// Find returns the numbers of the block devices with that identity whose requests the kernel may hold. A device
// that is stopped, or never began, has none.
func Find(identity uint64) ([]int, error) {
	h, err := openHost()
	if err != nil {
		return nil, err
	}
	found, err := find(h, identity)
	return found, errors.Join(err, h.close())
}

func find(h host, identity uint64) (found []int, err error) {
	numbers, err := h.numbers()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		has, err := inspect(h, n)
		switch {
		case errors.Is(err, ErrNone): // it was removed meanwhile
		case errors.Is(err, unix.EINVAL): // another program made it with UBLK_F_UNPRIVILEGED_DEV, and the kernel wants its path
		case err != nil:
			return nil, err
		case has.identity == identity && has.state != stateDead:
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found, nil
}

func (*linuxHost) numbers() ([]int, error) { return numbersIn(charClass) }

// numbersIn reads the directory charClass.
func numbersIn(class string) ([]int, error) {
	entries, err := os.ReadDir(class)
	if err != nil {
		return nil, fmt.Errorf("pmnbd needs /sys to see which ublk devices wait already: mount it (%w)", err)
	}
	var numbers []int
	for _, e := range entries {
		n, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "ublkc"))
		if err != nil {
			return nil, fmt.Errorf("%s is no ublk device: %w", e.Name(), err)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
