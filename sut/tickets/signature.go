package tickets

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// signature is t=<unix seconds>,v1=<hex of 32 bytes>.
var signature = regexp.MustCompile(`^t=([0-9]{1,12}),v1=([0-9a-f]{64})$`)

// verify checks a callback's only Payments-Signature over the bytes that came,
// before anybody looks at what they say. The error is made of a problem.
func verify(header http.Header, body []byte, secret string, now time.Time, window time.Duration) error {
	sent := header.Values("Payments-Signature")
	if len(sent) != 1 {
		return signatureInvalid.Err()
	}
	parts := signature.FindStringSubmatch(sent[0])
	if parts == nil {
		return signatureInvalid.Err()
	}
	theirs, err := hex.DecodeString(parts[2])
	if err != nil || !hmac.Equal(theirs, sign(secret, parts[1], body)) {
		return signatureInvalid.Err()
	}
	second, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || now.Sub(time.Unix(second, 0)).Abs() > window {
		return signatureExpired.Err()
	}
	return nil
}

// sign is the HMAC of a time, in unix seconds, and a body.
func sign(secret, t string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t + ".")) // a hash takes anything
	mac.Write(body)
	return mac.Sum(nil)
}
