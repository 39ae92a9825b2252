# The definition "phrases": the owner of the session reads a text once and splits it into sentences.
def set_up(text, ctx):
    return [s.strip() for s in text.split(".") if s.strip()]  # ctx.session.state of the handlers in the session


def tear_down(sentences):
    sentences.clear()
