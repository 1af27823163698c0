package admintest

import (
	"context"
	"fmt"
	"slices"

	"github.com/usher-edge/usher/admin"
)

// SetReceipt adds a receipt, or replaces that of the same attempt.
func (c *Control) SetReceipt(rc admin.Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.receipts = slices.DeleteFunc(slices.Clone(c.receipts), func(x admin.Receipt) bool {
		return x.App == rc.App && x.Attempt == rc.Attempt
	})
	c.receipts = append(c.receipts, rc)
}

// Receipts implements admin.Control.
func (c *Control) Receipts(_ context.Context, app string) ([]admin.Receipt, error) {
	if err := c.refused("receipts"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.app(app); err != nil {
		return nil, err
	}
	var list []admin.Receipt
	for _, rc := range slices.Backward(c.receipts) {
		if rc.App == app {
			list = append(list, rc)
		}
	}
	return list, nil
}

// Receipt implements admin.Control.
func (c *Control) Receipt(ctx context.Context, app string, attempt uint64) (admin.Receipt, error) {
	list, err := c.Receipts(ctx, app)
	if err != nil {
		return admin.Receipt{}, err
	}
	for _, rc := range list {
		if rc.Attempt == attempt {
			return rc, nil
		}
	}
	return admin.Receipt{}, &admin.Error{
		Kind: admin.NotFound, Code: admin.CodeReceiptNotFound, Detail: fmt.Sprintf("app %s has no receipt of attempt %d", app, attempt),
	}
}
