package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Quantity is an amount of a resource, in thousandths of its unit. Texts have the form of quantities in Kubernetes: a
// decimal number with an optional suffix.
type Quantity struct {
	thousandths int64
	scales      byte // the suffixes of its text form: noSuffix, decimal or binary
}

// The values of Quantity.scales.
const (
	noSuffix byte = iota
	decimal
	binary
)

// maxQuantity is the largest quantity, 1P. Two of them and their sum fit in an int64.
const maxQuantity = 1e18

// scale is one suffix of quantities.
type scale struct {
	suffix string
	factor int64
}

var (
	binaryScales  = []scale{{"PiB", 1 << 50}, {"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}
	decimalScales = []scale{{"P", 1e15}, {"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}}
)

// scalesBySuffix has the factor of each suffix in thousandths. Ki and KiB are equal, and so are k, K, kB and KB; m is a
// thousandth.
var scalesBySuffix = func() map[string]int64 {
	all := map[string]int64{"": 1000, "m": 1, "K": 1_000_000, "KB": 1_000_000}
	for _, s := range binaryScales {
		all[s.suffix], all[strings.TrimSuffix(s.suffix, "B")] = s.factor*1000, s.factor*1000
	}
	for _, s := range decimalScales {
		all[s.suffix], all[s.suffix+"B"] = s.factor*1000, s.factor*1000
	}
	return all
}()

var quantityForm = regexp.MustCompile(`^([0-9]{1,19})(?:\.([0-9]{1,19}))?([A-Za-z]*)$`)

// errQuantity is the error of a text that is no quantity.
var errQuantity = errors.New(
	"is no quantity; write a number with an optional suffix, such as 2, 0.5, 500m, 24GiB or 80G",
)

// ParseQuantity parses a quantity: digits, an optional fraction, and one of the suffixes m, k, M, G, T, P, Ki, Mi, Gi,
// Ti, Pi, all but m also with B. A fraction of a thousandth is rounded up, as in Kubernetes.
func ParseQuantity(text string) (Quantity, error) {
	part := quantityForm.FindStringSubmatch(text)
	if part == nil {
		return Quantity{}, errQuantity
	}
	factor, ok := scalesBySuffix[part[3]]
	if !ok {
		return Quantity{}, errQuantity
	}
	digits, _ := new(big.Int).SetString(part[1]+part[2], 10) // the form has only digits
	shift := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(part[2]))), nil)
	n, rest := digits.Mul(digits, big.NewInt(factor)).QuoRem(digits, shift, new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	if n.Cmp(big.NewInt(maxQuantity)) > 0 {
		return Quantity{}, fmt.Errorf("is too large; the maximum is %s", Quantity{maxQuantity, decimal})
	}
	q := Quantity{thousandths: n.Int64()}
	switch {
	case strings.Contains(part[3], "i"):
		q.scales = binary
	case part[3] != "" && part[3] != "m":
		q.scales = decimal
	}
	return q, nil
}

// Thousandths returns the quantity in thousandths of its unit.
func (q Quantity) Thousandths() int64 { return q.thousandths }

// OfThousandths returns a quantity of n thousandths that is written like q.
func (q Quantity) OfThousandths(n int64) Quantity { return Quantity{n, q.scales} }

// Bytes returns the quantity of n bytes.
func Bytes(n int64) Quantity { return Quantity{n * 1000, binary} }

// String returns the shortest exact form with a suffix of the same kind, such as 24GiB or 2.
func (q Quantity) String() string {
	var scales []scale
	switch q.scales {
	case decimal:
		scales = decimalScales
	case binary:
		scales = binaryScales
	}
	for _, s := range scales {
		if f := s.factor * 1000; q.thousandths != 0 && q.thousandths%f == 0 {
			return strconv.FormatInt(q.thousandths/f, 10) + s.suffix
		}
	}
	if q.thousandths%1000 == 0 {
		return strconv.FormatInt(q.thousandths/1000, 10)
	}
	return strconv.FormatInt(q.thousandths, 10) + "m"
}

// MarshalJSON writes the text form.
func (q Quantity) MarshalJSON() ([]byte, error) { return json.Marshal(q.String()) }

// UnmarshalJSON reads the text form, or a number.
func (q *Quantity) UnmarshalJSON(raw []byte) (err error) {
	text := string(raw)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
	}
	if *q, err = ParseQuantity(text); err != nil {
		return fmt.Errorf("%q %w", text, err)
	}
	return nil
}

// Resources are quantities by the name of the resource: those a session needs, or those a worker declares for its
// sessions.
type Resources map[string]Quantity

// EverySession is the name in [RegisterRequest.SessionResources] whose amounts apply to sessions of every definition.
const EverySession = "*"

// MaxResources is the maximum number of resources of a session or a worker.
const MaxResources = 16

// ResourceMemory is the resource that workers need not declare: a worker without it has no limit.
const ResourceMemory = "memory"

var resourceName = regexp.MustCompile(`^[a-z]([a-z0-9_./-]{0,61}[a-z0-9])?$`)

// CheckResources rejects names of resources that are invalid, and too many; at returns the path of a member. Zero
// amounts are valid for a worker, and not for a session.
func CheckResources(r Resources, member string, session bool, at func(string) string) error {
	if len(r) > MaxResources {
		return Invalid(at(member), "has more than %d resources", MaxResources)
	}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if !resourceName.MatchString(name) {
			return Invalid(
				at(member), "has the invalid name %.70q; a name has 1 to 63 of a-z, 0-9 and _ . / -, begins with a letter and "+
					"ends with a letter or digit", name,
			)
		}
		if session && r[name].thousandths == 0 {
			return Invalid(at(member+"."+name), "must be greater than 0")
		}
	}
	return nil
}

// ParseResources parses NAME=QUANTITY pairs, separated by commas.
func ParseResources(text string) (Resources, error) {
	var all Resources
	for pair := range strings.SplitSeq(text, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, amount, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not NAME=QUANTITY", pair)
		}
		q, err := ParseQuantity(amount)
		if err != nil {
			return nil, fmt.Errorf("%s: %q %w", name, amount, err)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%s is set twice", name)
		}
		if all == nil {
			all = Resources{}
		}
		all[name] = q
	}
	return all, CheckResources(all, "resources", false, unnested)
}

// ReadResources parses the quantities of a map.
func ReadResources(of map[string]string) (Resources, error) {
	var all Resources
	for _, name := range slices.Sorted(maps.Keys(of)) {
		q, err := ParseQuantity(of[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %q %w", name, of[name], err)
		}
		if all == nil {
			all = Resources{}
		}
		all[name] = q
	}
	return all, CheckResources(all, "resources", false, unnested)
}

// String returns NAME=QUANTITY pairs, sorted by name and separated by commas. ParseResources reads them.
func (r Resources) String() string {
	pairs := make([]string, 0, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		pairs = append(pairs, name+"="+r[name].String())
	}
	return strings.Join(pairs, ",")
}

// Texts returns the quantities in their text form. ReadResources reads them.
func (r Resources) Texts() map[string]string {
	all := make(map[string]string, len(r))
	for name, q := range r {
		all[name] = q.String()
	}
	return all
}

// Equal reports whether both have the same amounts.
func (r Resources) Equal(o Resources) bool {
	return maps.EqualFunc(r, o, func(a, b Quantity) bool { return a.thousandths == b.thousandths })
}

// ResourceUse is the use of one resource of a worker.
type ResourceUse struct {
	Total Quantity `json:"total"`
	Used  Quantity `json:"used"` // by held, suspended and prepared sessions
}
