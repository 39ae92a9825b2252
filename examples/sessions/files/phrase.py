# Returns a sentence of the state that phrases.session.py has set up.
session = "phrases"


def main(n, ctx):
    return ctx.session.state[n]
