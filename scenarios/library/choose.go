package library

import (
	"math/rand/v2"

	"github.com/overbook/overbook/harness"
)

// chooseOne decides one seat.
func chooseOne(rng *rand.Rand, _ harness.Params) (any, error) {
	return choices{Seats: seatNames(rng, 1)}, nil
}
