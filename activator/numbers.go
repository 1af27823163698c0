package activator

import "sync"

// numbers hands out generation numbers from blocks that are reserved durably, so
// that no number is ever used twice, whatever crashes. Each block is twice the one
// before: a start that asks for a hundred thousand waits for the disk a few times.
type numbers struct {
	reserve func(n uint64) (first uint64, err error)

	// mu guards the fields below. A block is reserved outside of it: those who
	// ask at the same time may reserve one each, and the numbers of all but the
	// last are lost.
	mu         sync.Mutex
	next, left uint64
	block      uint64 // the size of the last one; 0: there was none
}

// The sizes of blocks. What is left of one when usher ends is lost.
const (
	firstBlock = 64
	mostBlock  = 1 << 16
)

func (n *numbers) take() (uint64, error) {
	v, block := n.pop()
	if v != 0 {
		return v, nil
	}
	first, err := n.reserve(block)
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next, n.left, n.block = first+1, block-1, block
	return first, nil
}

// pop takes a number of the block at hand, or says how large the next one is to be.
func (n *numbers) pop() (v, block uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		return 0, min(max(firstBlock, 2*n.block), mostBlock)
	}
	v = n.next
	n.next++
	n.left--
	return v, 0
}
