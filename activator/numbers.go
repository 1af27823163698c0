package activator

import "sync"

// numbers hands out generation numbers from blocks that are reserved durably, so
// that no number is ever used twice, whatever crashes.
type numbers struct {
	reserve func(n uint64) (first uint64, err error)

	// mu guards the fields below. The reservation of a block happens under it:
	// it is rare, and whoever asks next needs its result.
	mu         sync.Mutex
	next, left uint64
}

const numberBlock = 64

func (n *numbers) take() (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		first, err := n.reserve(numberBlock)
		if err != nil {
			return 0, err
		}
		n.next, n.left = first, numberBlock
	}
	v := n.next
	n.next++
	n.left--
	return v, nil
}
