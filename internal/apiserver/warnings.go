package apiserver

import (
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/net"
)

// warnings collects warnings for the client. They are sent as Warning headers
// (RFC 2616, code 299), up to maxWarnings bytes.
type warnings struct {
	mu    sync.Mutex // guards texts; admission webhooks warn concurrently
	texts []string
}

const (
	maxWarning  = 256      // runes of one warning if not all of them fit
	maxWarnings = 4 * 1024 // bytes of all warnings
)

// AddWarning implements warning.Recorder. It drops duplicates.
func (w *warnings) AddWarning(_, text string) {
	if text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.texts) < maxWarnings && !slices.Contains(w.texts, text) { // each takes a byte at least
		w.texts = append(w.texts, text)
	}
}

func (w *warnings) write(h http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.texts) == 0 {
		return
	}
	all := 0
	for _, text := range w.texts {
		all += len(text)
	}
	sent := 0
	for _, text := range w.texts {
		if runes := []rune(text); all > maxWarnings && len(runes) > maxWarning {
			text = string(runes[:maxWarning])
		}
		header, err := net.NewWarningHeader(299, "-", text)
		if err != nil {
			continue
		}
		if sent += len(text); sent > maxWarnings {
			break
		}
		h.Add("Warning", header)
	}
}
