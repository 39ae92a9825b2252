package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// parse parses a value in the format of flags and environment variables.
func (k kind) parse(v string) (any, error) {
	switch k {
	case number:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", v)
		}
		return n, nil
	case flag:
		switch strings.ToLower(strings.TrimSpace(v)) {
		case "true", "1", "yes", "on":
			return true, nil
		case "false", "0", "no", "off":
			return false, nil
		}
		return nil, fmt.Errorf("%q is neither true nor false", v)
	case span:
		v = strings.TrimSpace(v)
		if n, err := strconv.ParseInt(v, 10, 32); err == nil {
			return time.Duration(n) * time.Second, nil
		}
		d, err := time.ParseDuration(v)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration such as 30s or 5m", v)
		}
		return d, nil
	case list:
		items := []string{}
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		return items, nil
	default:
		return v, nil
	}
}

// fromFile converts a typed value of the configuration file to the text that parse reads.
func fromFile(k kind, v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool, int, int64, uint64:
		return fmt.Sprint(v), nil
	case []any:
		if k != list {
			return "", fmt.Errorf("must be a %s, not a list", k)
		}
		items := make([]string, len(v))
		for i, item := range v {
			text, err := fromFile(text, item)
			if err != nil {
				return "", err
			}
			items[i] = text
		}
		return strings.Join(items, ","), nil
	default:
		return "", fmt.Errorf("%v is not a %s", v, k)
	}
}

// formatValue is the inverse of parse.
func formatValue(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return shortDuration.ReplaceAllString(v.String(), "$1")
	default:
		return fmt.Sprint(v)
	}
}

// shortDuration shortens 5m0s to 5m and 1h0m0s to 1h.
var shortDuration = regexp.MustCompile(`([hm])(0m)?0s$`)
