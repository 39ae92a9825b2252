package filter

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var registered = map[string]string{
	"Amount": engine.AttributeInt, "Rate": engine.AttributeDouble, "Who": engine.AttributeKeyword,
	"Vip":  engine.AttributeBool,
	"Seen": engine.AttributeTime, "Tags": engine.AttributeKeywordList, "status": engine.AttributeKeyword,
}

func TestFilterSelectsRuns(t *testing.T) {
	for text, want := range map[string]string{
		`Who = 'it''s' and Amount>=3`: `attribute Who in ["tit's"]; attribute Amount >= ["n` + number("3") +
			`"]`,
		`Who IN ("a", 'b\'c') AND Vip = TRUE`: `attribute Who in ["ta" "tb'c"]; attribute Vip in ["b1"]`,
		`Rate between -1.5 and 2`: `attribute Rate between ["n` + number("-1.5") + `" "n` + number("2") +
			`"]`,
		`WorkflowType STARTS_WITH 'Or' AND RunId!='x'`: `type prefix ["Or"]; run_id not in ["x"]`,
		`Status = 'Failed'`:                            `status in ["failed" "timed_out"]`,
		`Status != "completed"`:                        `status in ["running" "failed" "timed_out" "cancelled" "terminated"]`,
		`StartTime > '1970-01-02'`:                     `started_at > ['\x14\x1d\xc0\x00']`,
		`CloseTime IS NULL AND Tags is not null`:       `closed_at absent []; attribute Tags present []`,
		"`odd name` NOT IN (1)":                        `attribute odd name not in ["n` + number("1") + `"]`,
		`workflowid = "a"`:                             `workflow_id in ["a"]`,
		`status = "mine"`:                              `attribute status in ["tmine"]`,
		`Seen < '2026-01-01T00:00:00+01:00'`:           `attribute Seen < ["` + key(t, "2025-12-31T23:00:00Z") + `"]`,
		`Unknown > '2026-01-01'`:                       `attribute Unknown > ["` + key(t, "2026-01-01T00:00:00Z") + `"]`,
		`Vip = true OR Who = 'a' AND RunId = 'x'`:      `(attribute Vip in ["b1"] | attribute Who in ["ta"]; run_id in ["x"])`,
		`(Vip = true OR Who = 'a') and RunId = 'x'`:    `(attribute Vip in ["b1"] | attribute Who in ["ta"]); run_id in ["x"]`,
		`Who = 'a' OR Who IN ('b', 'c')`:               `attribute Who in ["ta" "tb" "tc"]`,
		`NOT Who = 'a' AND Vip = true`:                 `attribute Who not in ["ta"]; attribute Vip in ["b1"]`,
		`NOT (Who = 'a' OR Vip = true)`:                `attribute Who not in ["ta"]; attribute Vip not in ["b1"]`,
		`NOT (Who = 'a' AND not Who is null)`:          `(attribute Who not in ["ta"] | attribute Who absent [])`,
		`not not ((Vip = true))`:                       `attribute Vip in ["b1"]`,
		`NOT RunId STARTS_WITH 'x'`:                    `not run_id prefix ["x"]`,
		`NOT Status IN ('running', 'failed')`:          `status in ["completed" "cancelled" "terminated" "continued"]`,
		`Status = 'running' OR Status = 'cancelled'`:   `status in ["running" "cancelled"]`,
		`ActivityType = 'a' OR activitytype = 'b'`:     `type in ["\x01a" "\x01b"]`,
		`ActivityType IS NOT NULL`:                     `type prefix ["\x01"]`,
		`ActivityType IS NULL`:                         `not type prefix ["\x01"]`,
		`NOT ActivityType = 'a'`:                       `type prefix ["\x01"]; type not in ["\x01a"]`,
		`NOT ActivityType STARTS_WITH 'a'`:             `type prefix ["\x01"]; not type prefix ["\x01a"]`,
		`ActivityType > 'a'`:                           `type prefix ["\x01"]; type > ["\x01a"]`,
		`Stuck = true`:                                 `stuck present []`,
		`stuck != true`:                                `stuck absent []`,
		`Stuck = false AND Who = 'a'`:                  `stuck absent []; attribute Who in ["ta"]`,
		`NOT Stuck = true`:                             `stuck absent []`,
		`NOT Stuck = false OR RunId = 'x'`:             `(stuck present [] | run_id in ["x"])`,
		`not = 'a' or RunId = 'x'`:                     `(attribute not in ["ta"] | run_id in ["x"])`,
	} {
		list, err := Parse(text, registered)
		if s := shown(list); err != nil || s != want {
			t.Errorf("%s\n got %s, %v\nwant %s", text, s, err, want)
		}
	}
}

// shown formats conditions as these tests write them, with the parts of a choice separated by bars.
func shown(list []store.Condition) string {
	var got []string
	for _, c := range list {
		if len(c.Any) > 0 {
			var of []string
			for _, l := range c.Any {
				of = append(of, shown(l))
			}
			got = append(got, "("+strings.Join(of, " | ")+")")
			continue
		}
		values := fmt.Sprintf("%q", c.Values)
		if len(c.Values) > 0 {
			if n, ok := c.Values[0].(int64); ok && n == 86_400_000_000 {
				values = `['\x14\x1d\xc0\x00']`
			}
		}
		text := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", c.Field, c.Name, c.Test, values)), " ")
		if c.Not {
			text = "not " + text
		}
		got = append(got, text)
	}
	return strings.Join(got, "; ")
}

func number(n string) string { k, _ := engine.NumberKey(json.Number(n)); return k[1:] }

func key(t *testing.T, at string) string {
	parsed, ok := engine.AttributeTimeOf(at)
	if !ok {
		t.Fatal(at)
	}
	return engine.TimeKey(parsed)
}

func TestInvalidFilterNamesThePosition(t *testing.T) {
	for text, want := range map[string]string{
		`Stuck`:                   "6 = or != is expected after Stuck",
		`Stuck > true`:            "7 = or != is expected after Stuck",
		`Stuck = 'yes'`:           "9 Stuck is true or false",
		`Who =`:                   "6 a value is expected",
		`Who = x`:                 "7 texts stand in quotes",
		`Who = 'x`:                "7 not closed",
		`Who 'x'`:                 "5 an operator is expected",
		`= 1`:                     "1 the name of an attribute",
		`Amount = 'x'`:            "10 is registered as int",
		`Amount = 1 OR`:           "14 the name of an attribute",
		`Amount = 1 Who = 'x'`:    "12 AND or OR is expected",
		`(Amount = 1`:             "12 AND, OR or ) is expected",
		`Amount = 1)`:             "11 AND or OR is expected",
		`()`:                      "2 the name of an attribute",
		`NOT`:                     "4 an operator is expected",
		`NOT (Who = 'a' OR Who)`:  "22 an operator is expected",
		`Amount = 1 AND`:          "15 the name of an attribute",
		`Vip = 1`:                 "7 is registered as bool",
		`Seen > 'soon'`:           "8 is registered as datetime",
		`Amount STARTS_WITH '1'`:  "20 for texts",
		`Status = 'dozing'`:       "10 Status is one of",
		`Status > 'failed'`:       "10 no order",
		`StartTime > 12`:          "13 is a time",
		`Who IN 'a'`:              "8 ( is expected",
		`Who IN ('a' 'b')`:        "13 , or ) is expected",
		`Who = 'ä' AND Who # 'b'`: "19 not known",
		`Amount = 1.2.3`:          "10 is not a number",
		`Amount BETWEEN 1, 2`:     "17 AND is expected between",
		`Who IS NOT 'x'`:          "12 NULL is expected",
		`Who ! 'x'`:               "5 use !=",
		`TaskQueue = 3`:           "13 is a text",
		"Who = 'a'" + strings.Repeat(" AND Who = 'a'", 20): "281 more than 20 conditions",
	} {
		_, err := Parse(text, registered)
		e, _ := err.(*protocol.Error)
		at, about, _ := strings.Cut(want, " ")
		if e == nil || e.Reason != protocol.ReasonValidation || fmt.Sprint(e.Details["position"]) != at ||
			!strings.Contains(e.Message, about) || len(e.Fields["query"]) != 1 {
			t.Errorf("%s: %v %v, want %s", text, err, e, want)
		}
	}
	if _, err := Parse("A = '"+strings.Repeat("x", maxBytes)+"'", nil); err == nil {
		t.Error("a filter of any length is read")
	}
}

func TestATextWithoutAComparisonIsSearchedInIDs(t *testing.T) {
	for text, want := range map[string]bool{
		"order-12": false, "is": false, "in transit": false, "a b c": false, "x=1": true, "Who in ('a')": true,
		"Who IN('a')": true, "Who is null": true,
		"not found": false, "(a) in transit": false, "NOT Who IS NULL": true, "(Who IS NULL)": true, "this or that": false,
	} {
		if Is(text) != want {
			t.Errorf("%q is a filter: %v", text, !want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, s := range []string{
		`Who = 'a' AND Amount > 3`, "`x` IN (1,2)", "Seen BETWEEN '2026-01-01' AND '2026-01-02'", `"`, "A=\\",
		"NOT (A=1 OR (B=2 AND NOT C=3))",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Parse(text, registered)
		if err == nil && len(list) == 0 {
			t.Error("no conditions and no error")
		}
		if err != nil && protocol.ReasonOf(err) != protocol.ReasonValidation {
			t.Error(err)
		}
	})
}
