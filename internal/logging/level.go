package logging

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// current are the settings of the components of a process, which can change.
type current struct {
	initial Levels

	mu         sync.Mutex // guards components
	components map[string]*settings
}

// settings are those of all loggers of a component.
type settings struct {
	level atomic.Int32
	json  atomic.Bool // the lines are JSON
}

// of returns the settings of a component.
func (c *current) of(component string) *settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.components[component]
	if s == nil {
		s = &settings{}
		s.level.Store(int32(c.initial.of(component)))
		c.components[component] = s
	}
	return s
}

// RaiseLevel raises the level of the component whose logger is in ctx, if it is lower. It
// does nothing if the logger is not of this package.
func RaiseLevel(ctx context.Context, level int) {
	s, ok := klog.FromContext(ctx).GetSink().(*sink)
	if !ok {
		return
	}
	wanted := int32(min(level, math.MaxInt32))
	for {
		now := s.level.Load()
		if now >= wanted || s.level.CompareAndSwap(now, wanted) {
			return
		}
	}
}

// LevelPath is where servers have LevelHandler.
const LevelPath = "/debug/flags/v"

// LevelHandler returns a handler that sets the level of a component as upstream's does:
// to the number in the body of a PUT. The component is the one of the logger in the
// context of the request. Of a component that runs for several nodes of a process, it
// sets the level for all of them.
func LevelHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, text := setLevel(w, r)
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(code)
		_, _ = fmt.Fprintln(w, text)
	})
}

// maxLevelBody bounds the body of a request for a level, in bytes.
const maxLevelBody = 64

// setLevel sets the level that a request asks for, and returns the answer.
func setLevel(w http.ResponseWriter, r *http.Request) (code int, text string) {
	if r.Method != http.MethodPut {
		return http.StatusNotAcceptable, "unsupported http method"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLevelBody))
	if err != nil {
		return http.StatusBadRequest, "error reading request body: " + err.Error()
	}
	level, err := strconv.ParseUint(string(body), 10, 31)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	log := klog.FromContext(r.Context())
	s, ok := log.GetSink().(*sink)
	if !ok {
		return http.StatusBadRequest, "the level of this component's log cannot be set"
	}
	was := s.level.Swap(int32(level))
	log.Info("Set the log level", "level", level, "was", was)
	return http.StatusOK, fmt.Sprintf("successfully set klog.logging.verbosity to %d", level)
}
