package protocol

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestQuantitiesAreParsedExactly(t *testing.T) {
	for text, want := range map[string]struct {
		thousandths int64
		text        string
	}{
		"2": {2_000, "2"}, "0": {0, "0"}, "0.5": {500, "500m"}, "500m": {500, "500m"}, "2.0": {2_000, "2"},
		"24GiB": {24 << 30 * 1000, "24GiB"}, "24Gi": {24 << 30 * 1000, "24GiB"}, "1.5Gi": {1536 << 20 * 1000, "1536MiB"},
		"80G": {80_000_000_000_000, "80G"}, "80GB": {80_000_000_000_000, "80G"}, "1k": {1_000_000, "1k"},
		"1K": {1_000_000, "1k"}, "1000": {1_000_000, "1000"}, "1024Ki": {1 << 20 * 1000, "1MiB"},
		"0.0001": {1, "1m"}, "1.0001": {1_001, "1001m"}, "0.1Ki": {102_400, "102400m"}, "1P": {1e18, "1P"},
		"0Gi": {0, "0"}, "1TiB": {1 << 40 * 1000, "1TiB"},
	} {
		q, err := ParseQuantity(text)
		if err != nil || q.Thousandths() != want.thousandths || q.String() != want.text {
			t.Errorf("%s: got %d, %s, %v, want %+v", text, q.Thousandths(), q, err, want)
		}
		again, err := ParseQuantity(q.String())
		if err != nil || again.Thousandths() != q.Thousandths() {
			t.Errorf("%s: its text %s is read as %d, %v", text, q, again.Thousandths(), err)
		}
	}
	for _, text := range []string{
		"", " ", "-1", "+1", "1 Gi", "Gi", "1.Gi", ".5", "1e3", "1Gib", "1gi", "1X", "1.2.3", "1,5", "0x10", "1Ei", "2P",
		"1Pi", "9999999999999999999G", strings.Repeat("9", 40), "1mB", "NaN",
	} {
		if q, err := ParseQuantity(text); err == nil {
			t.Errorf("%q is read as %s", text, q)
		}
	}
}

func TestResourcesAreValidated(t *testing.T) {
	r, err := ParseResources("gpu_mem=80GiB, licence=2,")
	if err != nil || r.String() != "gpu_mem=80GiB,licence=2" {
		t.Errorf("got %s, %v", r, err)
	}
	many := ""
	for i := range MaxResources + 1 {
		many += "r" + string(rune('a'+i)) + "=1,"
	}
	for text, want := range map[string]string{
		"gpu_mem": "NAME=QUANTITY", "gpu_mem=": "no quantity", "gpu_mem=1,gpu_mem=2": "twice", "GPU=1": "invalid name",
		"=1": "invalid name", "gpu mem=1": "invalid name", "gpu_=1": "invalid name", many: "more than 16",
		strings.Repeat("a", 64) + "=1": "invalid name",
	} {
		if _, err := ParseResources(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, want %s", text, err, want)
		}
	}
	if err := CheckResources(Resources{"licence": {}}, "resources", true, unnested); err == nil {
		t.Error("a session may need nothing of a resource")
	}
	if err := CheckResources(Resources{"licence": {}}, "resources", false, unnested); err != nil {
		t.Error(err)
	}
}

func TestResourcesInJSONAreTextsOrNumbers(t *testing.T) {
	var r Resources
	if err := json.Unmarshal([]byte(`{"gpu_mem":"24GiB","licence":2,"share":0.5}`), &r); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(r)
	if err != nil || string(raw) != `{"gpu_mem":"24GiB","licence":"2","share":"500m"}` {
		t.Errorf("got %s, %v", raw, err)
	}
	for _, bad := range []string{`{"a":true}`, `{"a":null}`, `{"a":-1}`, `{"a":[]}`, `{"a":"x"}`, `{"a":1e3}`} {
		if err := json.Unmarshal([]byte(bad), &r); err == nil {
			t.Errorf("%s is read as %s", bad, r)
		}
	}
}
