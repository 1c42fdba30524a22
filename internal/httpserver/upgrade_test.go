package httpserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// answers is a connection to a server that sends a text.
type answers struct {
	net.Conn
	text io.Reader
}

func (a answers) Read(p []byte) (int, error) { return a.text.Read(p) }

// What a server sends is bounded until it has upgraded the connection, however it sends
// it, and not afterwards.
func TestAnswersToUpgradesAreBounded(t *testing.T) {
	const much = 2 * maxRefusal
	for name, test := range map[string]struct {
		text    string
		refused bool
	}{
		"an upgrade, and much afterwards": {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n" + strings.Repeat("x", much), false},
		"without carriage returns":        {"HTTP/1.1 101 ok\nUpgrade: x\n\n" + strings.Repeat("x", much), false},
		"without headers":                 {"HTTP/1.1 101 ok\r\n\r\n" + strings.Repeat("x", much), false},
		"many headers":                    {"HTTP/1.1 101 ok\r\n" + strings.Repeat("A: b\r\n", MaxAnswerHeaderBytes/6), true},
		"a long header":                   {"HTTP/1.1 101 ok\r\nA: " + strings.Repeat("x", MaxAnswerHeaderBytes) + "\r\n\r\n", true},
		"a long line":                     {strings.Repeat("x", MaxAnswerHeaderBytes+1), true},
		"a refusal":                       {"HTTP/1.1 403 Forbidden\r\n\r\n" + strings.Repeat("x", maxRefusal/2), false},
		"an endless refusal":              {"HTTP/1.1 403 Forbidden\r\n\r\n" + strings.Repeat("x", much), true},
		"a refusal with another reason":   {"HTTP/1.1 403 101\r\n\r\n" + strings.Repeat("x", much), true},
	} {
		for how, from := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "in bytes": iotest.OneByteReader, "in halves": iotest.HalfReader,
		} {
			dial := func(context.Context, string, string) (net.Conn, error) {
				return answers{text: from(strings.NewReader(test.text))}, nil
			}
			to, over := Upgrading(&url.URL{Scheme: "http", Host: "192.0.2.1:80"}, &http.Transport{DialContext: dial})
			conn, err := over.DialContext(t.Context(), "tcp", to.Host)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if refused := err != nil; refused != test.refused || !refused && string(got) != test.text {
				t.Errorf("%s, %s: %d of %d bytes, %v", name, how, len(got), len(test.text), err)
			}
		}
	}
}

// The address of a server of HTTPS has its port, because the URL does not say HTTPS.
func TestUpgradingURLs(t *testing.T) {
	for from, want := range map[string]string{
		"http://192.0.2.1/a?b=c":       "http://192.0.2.1/a?b=c",
		"https://192.0.2.1:10250/a":    "http://192.0.2.1:10250/a",
		"https://192.0.2.1/":           "http://192.0.2.1:443/",
		"https://[2001:db8::1]/":       "http://[2001:db8::1]:443/",
		"https://[2001:db8::1]:8443/x": "http://[2001:db8::1]:8443/x",
	} {
		u, err := url.Parse(from)
		if err != nil {
			t.Fatal(err)
		}
		if to, _ := Upgrading(u, &http.Transport{}); to.String() != want || u.String() != from {
			t.Errorf("%s becomes %s, want %s", from, to, want)
		}
	}
}
