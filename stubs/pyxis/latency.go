package pyxis

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"

	"github.com/overbook/overbook/stubs/double"
)

// golden is the fractional part of the golden ratio: its multiples, taken
// modulo one, cover the unit interval evenly from the first few on.
const golden = 0.6180339887498949

// Draw gives the latency of the n-th call (from 1) of an endpoint ("POST
// /reserve"). It depends on nothing else, so that the n-th call takes as long
// in every run with this seed, however the calls interleave.
//
// The draws are stratified: the seed gives a starting point, from which each
// call goes on by the golden ratio through the quantiles of the distribution.
// Any run of neighbouring calls, ten or a thousand, so covers the whole
// distribution, and a comparison of few rounds is not decided by which side
// happened to draw the tail. Each single draw is distributed as the model says.
func (l Latency) Draw(seed uint64, endpoint string, n int) time.Duration {
	switch l.Model {
	case "fixed":
		return double.Millis(l.MedianMS)
	case "lognormal":
		key := binary.BigEndian.AppendUint64(nil, seed)
		key = append(key, endpoint...)
		start := rand.New(rand.NewChaCha8(sha256.Sum256(key))).Float64()
		_, quantile := math.Modf(start + golden*float64(n+l.Skip))
		return double.Millis(l.MedianMS * math.Exp(l.Sigma*normal(quantile)))
	default:
		return 0
	}
}

// normal is the quantile function of the standard normal distribution, cut at
// one in a billion on either side.
func normal(quantile float64) float64 {
	const least = 1e-9
	return math.Sqrt2 * math.Erfinv(2*min(max(quantile, least), 1-least)-1)
}
