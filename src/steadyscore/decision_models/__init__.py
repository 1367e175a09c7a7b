"""Decision models: typed questions about one state, answered with a probability per allowed answer.

questions      states, questions and answers         shape     both JSON shapes of a request: system_one, openai_shape
cases          a file of states with questions       presentations  the ways to show one
engine         asks a server that answers them       measures  what other presentations change
audit          the audit                             result    its folder, its values, its page
serving        answers of a served model             routes    their routes
"""
