package socketio

// Message is one message of an Engine.IO session, text or binary.
type Message struct {
	Binary bool
	Data   []byte
}

// Engine is one session of a server that [NewEngine] returned.
type Engine struct {
	session *session
	receive func(e *Engine, m Message)
}

// NewEngine returns a server of plain Engine.IO: sessions with messages, without the packets, namespaces and handlers
// of Socket.IO. It calls receive with the messages of each session, one at a time, on the reading goroutine: receive
// must not block.
func NewEngine(options Options, receive func(e *Engine, m Message)) *Server {
	s := NewServer(options)
	s.newSink = func(session *session) sink {
		session.setJoined(true) // there are no namespaces to join
		return &Engine{session: session, receive: receive}
	}
	return s
}

// ID is the session's random id.
func (e *Engine) ID() string { return e.session.id }

// Send queues a message. A nil error does not mean that the peer received it.
func (e *Engine) Send(m Message) error {
	f := frame{binary: m.Binary, data: m.Data}
	if !m.Binary {
		f.data = append([]byte{engineMessage}, m.Data...)
	}
	return e.session.out.enqueue([]frame{f}, enqueueDeadline())
}

func (e *Engine) text(data []byte) error {
	e.receive(e, Message{Data: data})
	return nil
}

func (e *Engine) binary(data []byte) error {
	e.receive(e, Message{Binary: true, Data: data})
	return nil
}

func (e *Engine) ended(error) {}
