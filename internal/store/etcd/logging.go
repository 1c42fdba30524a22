package etcd

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// etcdVerbosity is the klog level of etcd's informational messages. Its warnings
// and errors are two levels lower: the callers of the store report the relevant
// ones, and many are irrelevant, such as errors about its own closed listeners.
// Fatal errors are always logged.
const etcdVerbosity = 4

// zapLogger returns a logger for etcd that writes to ours.
func zapLogger(logger klog.Logger, options ...zap.Option) *zap.Logger {
	return zap.New(&logCore{logger: logger.WithName("etcd")}, options...)
}

// fatal receives etcd's fatal errors, such as a full or failing disk. By default,
// etcd exits the process. As a hook of its logger, fatal ends only the goroutine
// that logs the error, and Embedded.Run returns the error.
type fatal chan error

func newFatal() fatal { return make(fatal, 1) }

// options returns the logger options that install the hook.
func (f fatal) options() []zap.Option {
	return []zap.Option{zap.WithFatalHook(f), zap.WithPanicHook(f)}
}

// OnWrite implements zapcore.CheckWriteHook. It does not return.
func (f fatal) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	if strings.HasPrefix(entry.Message, "failed to purge ") {
		// Old files could not be deleted, for example because file descriptors ran
		// out. The next start deletes them. The goroutine that ends has no other
		// task.
		runtime.Goexit()
	}
	err := errors.New(entry.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", entry.Message, cause)
		}
	}
	select {
	case f <- err:
	default:
	}
	runtime.Goexit()
}

// logCore is a zapcore.Core that writes to a klog.Logger.
type logCore struct {
	logger klog.Logger
	fields []zapcore.Field
}

func verbosity(level zapcore.Level) int {
	switch {
	case level < zapcore.InfoLevel:
		return etcdVerbosity + 2
	case level == zapcore.InfoLevel:
		return etcdVerbosity
	}
	return etcdVerbosity - 2
}

func (c *logCore) Enabled(level zapcore.Level) bool {
	return level > zapcore.ErrorLevel || c.logger.V(verbosity(level)).Enabled()
}

func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	all := append(append([]zapcore.Field(nil), c.fields...), fields...)
	return &logCore{logger: c.logger, fields: all}
}

func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range c.fields {
		f.AddTo(values)
	}
	for _, f := range fields {
		f.AddTo(values)
	}
	pairs := make([]any, 0, 2*len(values.Fields))
	for key, value := range values.Fields {
		pairs = append(pairs, key, value)
	}
	if entry.Level > zapcore.ErrorLevel {
		c.logger.Error(nil, entry.Message, pairs...)
	} else {
		c.logger.V(verbosity(entry.Level)).Info(entry.Message, pairs...)
	}
	return nil
}

func (c *logCore) Sync() error { return nil }
