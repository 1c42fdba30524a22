package spec

import (
	"strings"
	"testing"
)

func TestFromEnvFile(t *testing.T) {
	for _, test := range []struct {
		text, key, want, fault string
		found                  bool
	}{
		{text: "A='1'\nB='2'\n", key: "B", want: "2", found: true},
		{text: "A='1'", key: "A", want: "1", found: true},
		{text: "A='1'\r\nB='2'\r\n", key: "B", want: "2", found: true},
		{text: "A='1'\nA='2'\n", key: "A", want: "1", found: true},
		{text: "  \tA='1'\n", key: "A", want: "1", found: true},
		{text: "\n \t\n# A='0'\n  # A='0'\nA='1' # A='2'\nB='3'#\n", key: "B", want: "3", found: true},
		{text: "A=' a=\"b\" # $C \\ '\n", key: "A", want: ` a="b" # $C \ `, found: true},
		{text: "A='one\ntwo\n\n# three\n'\nB='4'", key: "A", want: "one\ntwo\n\n# three\n", found: true},
		{text: "A= 'one'\nB='2'\n", key: "A", want: "", found: true},
		{text: "A= 'one'\nB='2'\n", key: "B", want: "2", found: true},
		{text: "A=''", key: "A", want: "", found: true},
		{text: "A='1'", key: "B"},
		{text: "", key: "A"},
		// A text in quotes sets no variable but its own.
		{text: "M='line1\nSECRET=evil\n'\nSECRET='good'\n", key: "SECRET", want: "good", found: true},
		{text: "M='line1\nSECRET='\nevil''\n", key: "SECRET", fault: "line 3 has no ="},
		{text: "A=1\n", key: "A", fault: "line 1 has a value without single quotes"},
		{text: "A=\"1\"\n", key: "A", fault: "line 1 has a value without single quotes"},
		{text: "\nA=\nB='1'", key: "B", fault: "line 2 has a value without single quotes"},
		{text: "A='a''b'\n", key: "A", fault: "line 1 has more than a comment"},
		{text: "A='a\nb' c\n", key: "A", fault: "line 2 has more than a comment"},
		{text: "A\nB='1'\n", key: "B", fault: "line 1 has no ="},
		{text: "B='a\nb'\nA\n", key: "C", fault: "line 3 has no ="},
		{text: "='1'\n", key: "A", fault: "line 1 has no name"},
		{text: "A ='1'\n", key: "A", fault: "line 1 has a blank before the ="},
		{text: "B='1\nA='\n", key: "B", want: "1\nA=", found: true},
		{text: "A='1'\nB='2\n", key: "B", fault: "line 2 has a value without a closing quote"},
		{text: "A='1'\nB\n", key: "A", want: "1", found: true},
		{text: "A='" + strings.Repeat("x", maxEnvValue+1) + "'", key: "A", fault: "32769 bytes, more than 32768"},
		{text: "A='\x00'", key: "A", fault: "zero byte"},
		{text: "A='1'", key: strings.Repeat("k", maxEnvKey+1), fault: "129 characters, more than 128"},
	} {
		value, found, err := FromEnvFile([]byte(test.text), test.key)
		switch {
		case test.fault != "":
			if err == nil || !strings.Contains(err.Error(), test.fault) {
				t.Errorf("%.80q: %v, want %q", test.text, err, test.fault)
			}
		case err != nil || value != test.want || found != test.found:
			t.Errorf("%.80q: %s is %q, %v, %v; want %q", test.text, test.key, value, found, err, test.want)
		}
	}
}
