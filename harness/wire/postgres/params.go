package pgwire

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	recordedParam  = 256  // bytes of a parameter in the record
	recordedParams = 1000 // parameters of one execution in the record
)

// parameter gives the text form of a parameter, for the record.
func parameter(value []byte, format int16, oid uint32) string {
	switch {
	case value == nil:
		return "NULL"
	case format == 0:
		return recorded(string(value[:min(len(value), recordedParam+1)]), recordedParam)
	}
	if text, ok := binaryText(value, oid); ok {
		return recorded(text, recordedParam)
	}
	return `\x` + hex.EncodeToString(value[:min(len(value), recordedParam/2-1)])
}

// Types of parameters, by their number in pg_type.
const (
	typeBool        = 16
	typeBytea       = 17
	typeName        = 19
	typeInt8        = 20
	typeInt2        = 21
	typeInt4        = 23
	typeText        = 25
	typeOID         = 26
	typeJSON        = 114
	typeFloat4      = 700
	typeFloat8      = 701
	typeUnknown     = 705
	typeBpchar      = 1042
	typeVarchar     = 1043
	typeDate        = 1082
	typeTimestamp   = 1114
	typeTimestamptz = 1184
	typeUUID        = 2950
	typeJSONB       = 3802
)

// arrays of these; the element's type is in the value itself.
var arrayTypes = map[uint32]bool{
	1000: true, 1001: true, 1003: true, 1005: true, 1007: true, 1009: true, 1014: true, 1015: true,
	1016: true, 1021: true, 1022: true, 1028: true, 1115: true, 1182: true, 1185: true, 2951: true, 199: true, 3807: true,
}

// postgresEpoch is 2000-01-01 in Unix microseconds.
const postgresEpoch = 946_684_800_000_000

func binaryText(v []byte, oid uint32) (string, bool) {
	switch oid {
	case typeText, typeVarchar, typeBpchar, typeName, typeJSON, typeUnknown:
		return string(v[:min(len(v), recordedParam+1)]), true
	case typeJSONB:
		if len(v) > 0 && v[0] == 1 {
			return string(v[1:min(len(v), recordedParam+2)]), true
		}
		return "", false
	case typeBytea:
		return "", false // its text form is the same \x
	}
	if arrayTypes[oid] {
		return arrayText(v)
	}
	return fixedText(v, oid)
}

// fixedText decodes types whose values have one size.
func fixedText(v []byte, oid uint32) (string, bool) {
	big := binary.BigEndian
	switch {
	case oid == typeBool && len(v) == 1:
		return map[bool]string{true: "t", false: "f"}[v[0] != 0], true
	case oid == typeInt2 && len(v) == 2:
		return strconv.Itoa(int(int16(big.Uint16(v)))), true
	case oid == typeInt4 && len(v) == 4:
		return strconv.Itoa(int(int32(big.Uint32(v)))), true
	case oid == typeOID && len(v) == 4:
		return strconv.FormatUint(uint64(big.Uint32(v)), 10), true
	case oid == typeInt8 && len(v) == 8:
		return strconv.FormatInt(int64(big.Uint64(v)), 10), true
	case oid == typeFloat4 && len(v) == 4:
		return strconv.FormatFloat(float64(math.Float32frombits(big.Uint32(v))), 'g', -1, 32), true
	case oid == typeFloat8 && len(v) == 8:
		return strconv.FormatFloat(math.Float64frombits(big.Uint64(v)), 'g', -1, 64), true
	case oid == typeUUID && len(v) == 16:
		h := hex.EncodeToString(v)
		return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-"), true
	case oid == typeDate && len(v) == 4:
		days := int64(int32(big.Uint32(v)))
		return time.UnixMicro(postgresEpoch).UTC().Add(time.Duration(days) * 24 * time.Hour).Format(time.DateOnly), days > -100_000 && days < 100_000
	case oid == typeTimestamp && len(v) == 8:
		return instant(int64(big.Uint64(v)), "")
	case oid == typeTimestamptz && len(v) == 8:
		return instant(int64(big.Uint64(v)), "+00")
	}
	return "", false
}

// instant writes microseconds since 2000 as Postgres does, in UTC.
func instant(us int64, zone string) (string, bool) {
	switch us {
	case math.MaxInt64:
		return "infinity", true
	case math.MinInt64:
		return "-infinity", true
	}
	if us > math.MaxInt64-postgresEpoch {
		return "", false
	}
	return time.UnixMicro(us+postgresEpoch).UTC().Format("2006-01-02 15:04:05.999999") + zone, true
}

// arrayText writes an array of one dimension as Postgres does: {a,"b c",NULL}.
func arrayText(v []byte) (string, bool) {
	if len(v) < 12 {
		return "", false
	}
	dimensions, element := binary.BigEndian.Uint32(v), binary.BigEndian.Uint32(v[8:])
	if dimensions == 0 {
		return "{}", true
	}
	if dimensions != 1 || len(v) < 20 {
		return "", false
	}
	count := binary.BigEndian.Uint32(v[12:])
	v = v[20:]
	var b strings.Builder
	b.WriteByte('{')
	for i := uint32(0); i < count && b.Len() <= recordedParam; i++ {
		if len(v) < 4 {
			return "", false
		}
		size := int32(binary.BigEndian.Uint32(v))
		v = v[4:]
		if i > 0 {
			b.WriteByte(',')
		}
		if size == -1 {
			b.WriteString("NULL")
			continue
		}
		if size < 0 || int(size) > len(v) {
			return "", false
		}
		text, ok := binaryText(v[:size], element)
		if !ok {
			if element != typeBytea {
				return "", false
			}
			text = `\x` + hex.EncodeToString(v[:min(int(size), recordedParam)])
		}
		v = v[size:]
		b.WriteString(quotedElement(text))
	}
	b.WriteByte('}')
	return b.String(), true
}

func quotedElement(s string) string {
	if s != "" && !strings.EqualFold(s, "null") && !strings.ContainsAny(s, "{},\"\\ \t\r\n\v\f") {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
