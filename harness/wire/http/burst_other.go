//go:build !linux

package wirehttp

import (
	"context"
	"errors"

	"github.com/overbook/overbook/harness"
)

// Burst needs Linux: it holds requests back with Linux's own system calls.
func (c *Client) Burst(context.Context, []string, harness.Burst) (harness.BurstReport, []harness.Operation, error) {
	return harness.BurstReport{}, nil, errors.New("bursts need Linux; run the harness there, or in a container")
}
