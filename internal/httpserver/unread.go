package httpserver

import (
	"net/http"
	"time"
)

// LimitUnread ends a request once its client has taken nothing of what is
// being sent for so long; 0 is no limit. A stream that has nothing to send
// lasts.
func LimitUnread(w http.ResponseWriter, limit time.Duration) http.ResponseWriter {
	if limit == 0 {
		return w
	}
	return &unreadLimiter{w, http.NewResponseController(w), limit}
}

type unreadLimiter struct {
	http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration
}

// Unwrap implements what http.ResponseController looks for.
func (l *unreadLimiter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// Write implements http.ResponseWriter.
func (l *unreadLimiter) Write(data []byte) (n int, err error) {
	defer l.sending()()
	return l.ResponseWriter.Write(data)
}

// Flush implements http.Flusher.
func (l *unreadLimiter) Flush() { _ = l.FlushError() }

// FlushError implements what http.ResponseController looks for.
func (l *unreadLimiter) FlushError() error {
	defer l.sending()()
	return l.control.Flush()
}

// sending bounds what is done until done is called. HTTP/2 ends a stream at
// its deadline even if nothing is being sent.
func (l *unreadLimiter) sending() (done func()) {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.limit)) // not every writer has deadlines
	return func() { _ = l.control.SetWriteDeadline(time.Time{}) }
}
