package activator

import "sync"

// numbers hands out generation numbers from blocks that are reserved durably, so
// that no number is ever used twice, whatever crashes.
type numbers struct {
	reserve func(n uint64) (first uint64, err error)

	// mu guards the fields below. A block is reserved outside of it: those who
	// ask at the same time may reserve one each, and the numbers of all but the
	// last are lost.
	mu         sync.Mutex
	next, left uint64
}

const numberBlock = 64

func (n *numbers) take() (uint64, error) {
	if v, ok := n.pop(); ok {
		return v, nil
	}
	first, err := n.reserve(numberBlock)
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next, n.left = first+1, numberBlock-1
	return first, nil
}

func (n *numbers) pop() (uint64, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		return 0, false
	}
	v := n.next
	n.next++
	n.left--
	return v, true
}
