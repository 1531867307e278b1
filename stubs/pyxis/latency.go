package pyxis

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"time"
)

// Draw gives the latency of the n-th call (from 1) of an endpoint ("POST
// /reserve"). It depends on nothing else, so that the n-th call takes as long
// in every run with this seed, however the calls interleave.
func (l Latency) Draw(seed uint64, endpoint string, n int) time.Duration {
	switch l.Model {
	case "fixed":
		return millis(l.MedianMS)
	case "lognormal":
		key := binary.BigEndian.AppendUint64(nil, seed)
		key = binary.BigEndian.AppendUint64(key, uint64(n))
		key = append(key, endpoint...)
		rng := rand.New(rand.NewChaCha8(sha256.Sum256(key)))
		return millis(l.MedianMS * math.Exp(l.Sigma*rng.NormFloat64()))
	default:
		return 0
	}
}

// wait waits without regard to the caller: the system works on when its
// caller has gone. d is at most maxWait.
func wait(d time.Duration) {
	if d > 0 {
		timer := time.NewTimer(d)
		<-timer.C
	}
}
